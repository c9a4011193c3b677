"""The `zinc` command. `main` puts the verbs together; each verb is one module and imports what it needs
when it runs, so that `zinc --help` starts neither the array nor the tokenizer library.
"""
