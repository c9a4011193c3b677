"""Kept data of finished requests: the ledger, records to replay them, and receipts for others to check."""
