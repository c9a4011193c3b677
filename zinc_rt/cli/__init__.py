"""The `zinc` command. `main` joins the verbs; each verb is one module.

A verb imports its dependencies when it runs, so `zinc --help` loads neither the array nor the tokenizer library.
"""
