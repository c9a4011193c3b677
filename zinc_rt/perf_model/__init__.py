"""What a model would take on a card that is not there: its real steps, on an emulated card without weights."""
