"""Lets an editor use this program's agent over the Agent Client Protocol (ACP), on
standard input and output.
"""
