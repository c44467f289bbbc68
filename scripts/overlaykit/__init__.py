"""Shared code of the scripts beside this folder."""
