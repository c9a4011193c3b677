"""What is kept of finished requests: the ledger, records to replay them by, and receipts for others to check."""
