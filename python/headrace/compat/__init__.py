"""Other loaders' classes over Headrace: an existing script changes one import."""
