--- The statements of store/full_text_search.py and store/cache_entry_queries.py.

-- found pieces
SELECT pieces.id, pieces.number, pieces.start, pieces.length, pieces.conversation, pieces.seq, entries.digest
FROM json_each(:row_ids) AS asked CROSS JOIN pieces ON pieces.id = asked.value LEFT JOIN entries ON entries.number = pieces.number
WHERE (:tool = '' OR entries.tool = :tool) AND (:entries_only = 0 OR pieces.number > 0)
AND (:named_tool = '' OR pieces.number = 0 OR instr(lower(entries.tool), :named_tool))
AND (:named_file = '' OR pieces.number = 0 OR instr(lower(entries.source), :named_file))

-- names of tools
--- Jumps from one name to the next in the index. Scanning a million rows would take 0.1 seconds.
WITH RECURSIVE names(name) AS (
  SELECT min(tool) FROM entries UNION ALL SELECT (SELECT min(tool) FROM entries WHERE tool > name) FROM names WHERE name IS NOT NULL
) SELECT name FROM names WHERE name IS NOT NULL
