"""Objects in stores, and URLs that name them."""
