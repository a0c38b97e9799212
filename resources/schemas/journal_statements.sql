--- The statements of store/journal_file.py.

-- conversations maybe in turn
--- Conversations whose last turn has no end. Only those of the last day: a running turn has written something since then.
SELECT id FROM conversations WHERE updated > (SELECT max(updated) - 86400 FROM conversations) AND coalesce(
  (SELECT substr(fact, 10, 10) FROM facts WHERE conversation = conversations.id
    AND substr(fact, 10, 9) IN ('TurnEnded', 'UserSaid"', 'ModelRepl', 'ToolRetur') ORDER BY seq DESC LIMIT 1), 'TurnEnded"'
) <> 'TurnEnded"' ORDER BY updated

-- first facts
SELECT facts.id, conversation, seq, time, fact, digest
FROM conversations JOIN facts ON conversation = conversations.id AND seq = CASE forked_from WHEN '' THEN 1 ELSE forked_at + 2 END
WHERE conversations.id NOT IN (SELECT conversation FROM meters)

-- facts with a cost
SELECT facts.id, conversation, seq, time, fact, digest
FROM conversations JOIN facts ON conversation = conversations.id
WHERE updated >= ? AND cost > 0
  AND substr(fact, 10, 9) IN ('ModelRepl', 'Spent","v', 'BroughtIn', 'Conversat')
ORDER BY conversation, seq

-- tables of a shared workspace
SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'in_step'

-- last facts by the own clock
SELECT conversations.id, facts.id FROM conversations JOIN facts ON conversation = conversations.id AND seq = last_seq
WHERE substr(fact, 10, 9) <> 'BroughtIn'
