"""The Python interface: models, chats, embeddings; arguments become requests, tokens become text."""
