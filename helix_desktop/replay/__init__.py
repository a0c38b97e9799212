"""Recorded sessions through the real engine."""
