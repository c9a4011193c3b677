#!/usr/bin/env bash
# The first run on a machine with a GPU behind a driver of its maker's (CUDA, OpenCL): bits, speeds, a report.
#
#   benchmarks/first_card.sh [--device cuda] [--out FOLDER] [--wheelhouse FOLDER] [--venv FOLDER] [--reduced]
#
# Under nine minutes: makes an environment, runs `zinc check --gpu`, the tests of the card, small models of each kind
# beside the CPU, and `zinc bench` on models of random weights. FOLDER gets report.txt, report.json and all output.
#   --wheelhouse   wheels of all that is needed: nothing is downloaded then
#   --venv         an environment that has the package already; none is made
#   --reduced      a model of each step at most: for trying the script itself, as with --device cpu
set -u
cd "$(dirname "$0")/.." || exit 1
device=cuda out=first_card wheels=() venv="" reduced=()
while [ $# -gt 0 ]; do
    case $1 in
        --device) device=$2; shift 2 ;;
        --out) out=$2; shift 2 ;;
        --wheelhouse) wheels=(--no-index --find-links "$2"); shift 2 ;;
        --venv) venv=$2; shift 2 ;;
        --reduced) reduced=(--reduced); shift ;;
        *) echo "first_card.sh: unknown option $1; the head of the file lists all" >&2; exit 2 ;;
    esac
done
began=$(date +%s)
mkdir -p "$out" || exit 1
if [ -z "$venv" ]; then
    venv=$out/venv extra=""
    case $device in opencl*) extra="[opencl]" ;; esac
    python3 -m venv "$venv" &&
        "$venv/bin/pip" install -q "${wheels[@]}" "setuptools>=77" wheel &&
        "$venv/bin/pip" install -q "${wheels[@]}" --no-build-isolation -e ".$extra" \
            pytest pytest-timeout hypothesis gguf packaging || exit 1
fi
exec "$venv/bin/python" benchmarks/first_card.py --device "$device" --out "$out" --began "$began" "${reduced[@]}"
