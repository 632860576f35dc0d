"""Batches on their way to an accelerator (design note 0043)."""
