"""Block formats: one record each (`table`), and decoders by the kind of a record (`decode`, `rows`).

`table` needs nothing, `rows` is NumPy, `decode` is written in the kernel language. Import the module that you need.
"""
