"""Plays recorded sessions through the real engine, to measure what a policy costs and loses."""
