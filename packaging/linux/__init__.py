"""Installers for one platform each."""
