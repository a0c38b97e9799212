"""The four protocols as agents and providers write them: messages read as parts, and changed where a fold stands for one.

Providers translate what the engine asks; here somebody else's JSON stays as it is, and only what is replaced is written.
"""
