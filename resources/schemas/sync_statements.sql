-- in_step
CREATE TABLE IF NOT EXISTS in_step(conversation TEXT PRIMARY KEY, seq INTEGER NOT NULL, chain BLOB NOT NULL, version INTEGER NOT NULL,
writer BLOB NOT NULL, head BLOB NOT NULL)

-- is_pending
coalesce((SELECT last_seq FROM conversations WHERE id = {0}), 0) <> coalesce((SELECT seq FROM in_step WHERE conversation = {0}), 0) AND
(EXISTS (SELECT 1 FROM conversations WHERE id = {0}) OR NOT EXISTS (SELECT 1 FROM released WHERE released.conversation = {0}))

-- unsent
--- A branch's first facts are there if they are in the original conversation.
SELECT id, last_seq - max(coalesce(seq, 0), min(forked_at, coalesce((SELECT seq FROM in_step WHERE conversation = forked_from), 0))) FROM
pending CROSS JOIN conversations ON id = pending.conversation LEFT JOIN in_step ON in_step.conversation = id WHERE last_seq > coalesce(seq,
0) ORDER BY updated, conversations.rowid
