"""A second reckoner: what a conversation's facts come to, written from
`store/FORMATS.md` without sight of the engine.

It recomputes everything from the first fact each time. Only counts of a moment are
remembered, because they are asked for again and again. `build_history_importer` makes
conversations by chance, `compare` looks at them as the program shows them and as this
does.
"""
