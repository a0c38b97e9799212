"""Tests of foreign agents as conversations."""
