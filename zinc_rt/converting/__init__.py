"""A Hugging Face folder as a GGUF file: config, safetensors and tokenizer in, what `quantizing` writes out."""
