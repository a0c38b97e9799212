-- pick
--- No task waits for a day: one that seems to was given back before the clock was set back.
SELECT id FROM {t}tasks WHERE space = %s AND state = 'waiting' AND open_needs = 0 AND (until <= {now} OR until > {now} + 86400) AND (deadline = 0 OR deadline > {now})
ORDER BY priority DESC, position LIMIT %s

-- give_back
UPDATE {t}tasks SET until = {now} + %s WHERE space = %s AND id = %s AND state = 'waiting' RETURNING id

-- next
--- In how many seconds a task may be tried again that was given back.
SELECT min(until) - {now} FROM {t}tasks WHERE space = %s AND state = 'waiting' AND open_needs = 0 AND until > {now} AND until <= {now} + 86400

-- count
SELECT state, count(*) FROM {t}tasks WHERE space = %s AND open_needs = 0 GROUP BY state
