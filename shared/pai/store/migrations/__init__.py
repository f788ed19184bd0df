"""Alembic migrations, shipped in the package."""
