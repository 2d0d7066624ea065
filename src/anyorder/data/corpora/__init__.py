"""The built-in corpora, a folder each."""
