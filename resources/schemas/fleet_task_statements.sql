-- add
INSERT INTO {t}tasks(space, id, state, priority, added, deadline, worker, until, claims, sealed, result) VALUES (%s, %s, 'waiting', %s,
{now}, CASE WHEN %s > 0 THEN {now} + %s ELSE 0 END, '', 0, 0, %s, %s) ON CONFLICT DO NOTHING RETURNING id

-- add_need
--- An existing task gets no new dependencies.
INSERT INTO {t}task_needs(space, task, needs) SELECT %s, %s, %s WHERE NOT EXISTS (SELECT 1 FROM {t}tasks WHERE space = %s AND id = %s) ON
CONFLICT DO NOTHING RETURNING task

-- hopeless
--- Waiting tasks that can never run: the deadline has passed, or a needed task failed.
SELECT w.id, w.deadline > 0 AND w.deadline < {now} FROM {t}tasks AS w WHERE w.space = %s AND w.state = 'waiting' AND ((w.deadline > 0 AND
w.deadline < {now}) OR w.id IN (SELECT n.task FROM {t}task_needs AS n JOIN {t}tasks AS d ON d.space = n.space AND d.id = n.needs WHERE
n.space = %s AND d.state IN ('failed', 'cancelled'))) LIMIT 500

-- renew
--- The stored number of claims may be too small if a standby took over before it had received the last one.
UPDATE {t}tasks SET state = 'running', worker = %s, claims = %s, until = {now} + %s WHERE space = %s AND id = %s AND ((claims = %s AND
worker = %s AND state = 'running') OR (claims < %s AND state IN ('waiting', 'running'))) RETURNING id

-- end
UPDATE {t}tasks SET state = %s, result = %s, worker = '', until = 0 WHERE space = %s AND id = %s AND claims = %s AND worker = %s AND state =
'running' RETURNING id

-- cancel
UPDATE {t}tasks SET state = %s, result = %s, worker = '', until = 0 WHERE space = %s AND id = %s AND state IN ('waiting', 'running',
'needs-you') RETURNING id

-- retry
UPDATE {t}tasks SET state = 'waiting', deadline = 0, sealed = %s WHERE space = %s AND id = %s AND state IN ('needs-you', 'failed',
'cancelled') RETURNING id

-- blank
UPDATE {t}tasks SET sealed = %s, result = %s WHERE space = %s AND id = %s AND claims = %s AND state <> 'running' RETURNING id

-- count
SELECT state, worker, count(*), sum(charged), sum(claims) FROM {t}tasks WHERE space = %s GROUP BY state, worker

-- claim
UPDATE {t}tasks SET state = 'running', worker = %s, until = {now} + %s, claims = claims + 1 WHERE space = %s AND id IN (SELECT w.id FROM
{t}tasks AS w WHERE w.space = %s AND w.state = 'waiting' AND (w.deadline = 0 OR w.deadline > {now}) AND NOT EXISTS (SELECT 1 FROM {t}notes
AS s WHERE s.space = w.space AND (s.name = 'stop' OR (s.name = 'timeline' AND s.until > {now}))) AND NOT EXISTS (SELECT 1 FROM {t}task_needs
AS n JOIN {t}tasks AS d ON d.space = n.space AND d.id = n.needs WHERE n.space = w.space AND n.task = w.id AND d.state <> 'done') ORDER BY
w.priority DESC, w.position LIMIT %s {lock}) RETURNING {columns}

-- list
SELECT {columns} FROM {t}tasks WHERE space = %s AND (%s = '' OR state = %s) ORDER BY position DESC LIMIT %s
