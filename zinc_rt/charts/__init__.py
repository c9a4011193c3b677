"""Drawings as SVG text: charts of speeds, profiles, recordings of a terminal. No library draws them."""
