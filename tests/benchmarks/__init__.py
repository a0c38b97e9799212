"""Benchmarks: whole-program and by component, each in one run beside what a user would
pick instead.
"""
