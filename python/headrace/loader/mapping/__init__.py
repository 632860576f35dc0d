"""The user's own code behind a loader, in processes, threads or the caller (design note 0041)."""
