"""What is known of a card, and what each interface of it does: the parts of a report that its owner can send."""
