-- add
INSERT INTO {t}tasks(space, id, state, priority, added, deadline, worker, until, claims, sealed, result, open_needs) SELECT %s, %s,
'waiting', %s, {now}, CASE WHEN %s > 0 THEN {now} + %s ELSE 0 END, '', 0, 0, %s, %s, %s WHERE NOT EXISTS (SELECT 1 FROM {t}ended_tasks
WHERE space = %s AND id = %s) ON CONFLICT DO NOTHING RETURNING id

-- hold_need
--- Until this transaction ends, the needed task cannot end, which would be missed.
SELECT id FROM {t}tasks WHERE space = %s AND id = %s {share}

-- add_need
--- An existing task gets no new dependencies, and what is done is no dependency any more.
INSERT INTO {t}task_needs(space, task, needs) SELECT %s, %s, %s WHERE NOT EXISTS (SELECT 1 FROM {t}tasks WHERE space = %s AND id = %s) AND
NOT EXISTS (SELECT 1 FROM {t}ended_tasks WHERE space = %s AND (id = %s OR (id = %s AND state = 'done'))) ON CONFLICT DO NOTHING RETURNING
task

-- ready
--- Whether a task that was just added or retried can run.
SELECT id, priority FROM {t}tasks WHERE space = %s AND id = %s AND state = 'waiting' AND open_needs = 0

-- cancel_hopeless
--- A task that has just been added or retried, if what it needs has failed.
UPDATE {t}tasks SET state = 'cancelled', reason = 'needs' WHERE space = %s AND id = %s AND state = 'waiting' AND EXISTS (SELECT 1 FROM
{t}task_needs WHERE space = %s AND task = %s AND needs = %s) AND EXISTS (SELECT 1 FROM {t}ended_tasks WHERE space = %s AND id = %s)
RETURNING id

-- needs_of_task
SELECT needs FROM {t}task_needs WHERE space = %s AND task = %s

-- late
--- Waiting tasks whose deadline has passed.
SELECT id FROM {t}tasks WHERE space = %s AND state = 'waiting' AND deadline > 0 AND deadline < {now} LIMIT 500

-- overdue
--- Tasks whose worker is lost, as nobody renewed the lease. No lease lasts an hour: one that seems to was taken before the clock was set back.
UPDATE {t}tasks SET state = CASE WHEN setbacks + 1 >= %s THEN 'dead-letter' ELSE 'waiting' END, reason = CASE WHEN setbacks + 1 >= %s THEN
'lost' ELSE '' END, until = 0, setbacks = setbacks + 1, worker = '' WHERE space = %s AND state = 'running' AND (until < {now} OR until > {now} + 3600) RETURNING id,
state, setbacks

-- release
--- Tasks of a process that has ended, on a computer that shares with no other.
UPDATE {t}tasks SET state = CASE WHEN setbacks + 1 >= %s THEN 'dead-letter' ELSE 'waiting' END, reason = CASE WHEN setbacks + 1 >= %s THEN
'lost' ELSE '' END, until = 0, setbacks = setbacks + 1, worker = '' WHERE space = %s AND state = 'running' AND worker NOT LIKE %s RETURNING
id, state, setbacks

-- claim
--- A dead letter too, which an operator let be tried again with the queue's own tools.
UPDATE {t}tasks SET state = 'running', worker = %s, until = {now} + %s, claims = claims + 1, reason = '' WHERE space = %s AND id = %s AND
state IN ('waiting', 'dead-letter') AND open_needs = 0 AND (deadline = 0 OR deadline > {now}) RETURNING {columns}

-- renew
--- The stored number of claims may be too small if a standby took over before it had received the last one.
UPDATE {t}tasks SET state = 'running', worker = %s, claims = %s, until = {now} + %s WHERE space = %s AND id = %s AND ((claims = %s AND
worker = %s AND state = 'running') OR (claims < %s AND state IN ('waiting', 'running'))) RETURNING id

-- end
UPDATE {t}tasks SET state = %s, result = %s, worker = '', until = 0, reason = '' WHERE space = %s AND id = %s AND claims = %s AND worker =
%s AND state = 'running' RETURNING id

-- give_back
UPDATE {t}tasks SET state = CASE WHEN setbacks + 1 >= %s THEN 'dead-letter' ELSE 'waiting' END, result = %s, until = 0, setbacks = setbacks +
1, worker = '', reason = '' WHERE space = %s AND id = %s AND claims = %s AND worker = %s AND state = 'running' RETURNING id, state, setbacks

-- oldest_waiting
SELECT {now} - added FROM {t}tasks WHERE space = %s AND state = 'waiting' ORDER BY position LIMIT 1

-- pause
UPDATE {t}tasks SET state = 'waiting', worker = '', until = 0 WHERE space = %s AND state = 'running' RETURNING id

-- cancel
UPDATE {t}tasks SET state = %s, result = %s, worker = '', until = 0, reason = '' WHERE space = %s AND id = %s AND state IN ('waiting',
'running', 'needs-you', 'dead-letter') RETURNING id

-- remove_met_need
--- Says which tasks waited for this one.
DELETE FROM {t}task_needs WHERE space = %s AND needs = %s RETURNING task

-- count_met_need
--- Counts down, so that it is right as well where another transaction has just counted down.
UPDATE {t}tasks SET open_needs = open_needs - 1 WHERE space = %s AND id = %s AND open_needs > 0 RETURNING id, priority, open_needs

-- dependants
SELECT task FROM {t}task_needs WHERE space = %s AND needs = %s

-- cancel_dependant
--- Only a waiting task has open needs.
UPDATE {t}tasks SET state = 'cancelled', reason = 'needs' WHERE space = %s AND id = %s AND open_needs > 0 RETURNING id

-- keep_ended
INSERT INTO {t}ended_tasks(space, id, position, state, priority, added, deadline, claims, sealed, result, charged, setbacks, reason, ended)
SELECT space, id, position, state, priority, added, deadline, claims, sealed, result, charged, setbacks, reason, {now} FROM {t}tasks WHERE
space = %s AND id = %s AND state IN ('done', 'failed', 'cancelled')

-- remove_ended
DELETE FROM {t}tasks WHERE space = %s AND id = %s AND state IN ('done', 'failed', 'cancelled')

-- retry_live
UPDATE {t}tasks SET state = 'waiting', deadline = 0, sealed = %s, until = 0, setbacks = 0, reason = '' WHERE space = %s AND id = %s AND state
IN ('needs-you', 'dead-letter') RETURNING id

-- retry_ended
INSERT INTO {t}tasks(space, id, position, state, priority, added, deadline, worker, until, claims, sealed, result, charged, open_needs)
SELECT e.space, e.id, e.position, 'waiting', e.priority, e.added, 0, '', 0, e.claims, %s, e.result, e.charged, (SELECT count(*) FROM
{t}task_needs AS n WHERE n.space = e.space AND n.task = e.id) FROM {t}ended_tasks AS e WHERE e.space = %s AND e.id = %s AND e.state IN
('failed', 'cancelled') {hold} ON CONFLICT DO NOTHING RETURNING id

-- remove_retried
DELETE FROM {t}ended_tasks WHERE space = %s AND id = %s AND EXISTS (SELECT 1 FROM {t}tasks WHERE space = %s AND id = %s) RETURNING id

-- retry_dead_letters
UPDATE {t}tasks SET state = 'waiting', until = 0, setbacks = 0, reason = '' WHERE space = %s AND state = 'dead-letter' RETURNING id

-- remove_old
DELETE FROM {t}ended_tasks WHERE space = %s AND id IN (SELECT id FROM {t}ended_tasks WHERE space = %s AND ended < {now} - %s ORDER BY ended
LIMIT %s) RETURNING id

-- pause_at_age
--- How long nothing ended after the newest of the tasks that are older than so many seconds.
SELECT coalesce((SELECT min(ended) FROM {t}ended_tasks WHERE space = %s AND ended >= {now} - %s AND ended <= {now}), {now}) - (SELECT max(ended)
FROM {t}ended_tasks WHERE space = %s AND ended < {now} - %s)

-- remove_needs_of_unknown
DELETE FROM {t}task_needs WHERE space = %s AND (NOT EXISTS (SELECT 1 FROM {t}tasks WHERE space = {t}task_needs.space AND id =
{t}task_needs.needs) AND NOT EXISTS (SELECT 1 FROM {t}ended_tasks WHERE space = {t}task_needs.space AND id = {t}task_needs.needs))

-- blank_live
UPDATE {t}tasks SET sealed = %s, result = %s WHERE space = %s AND id = %s AND claims = %s AND state <> 'running' RETURNING id

-- blank_ended
UPDATE {t}ended_tasks SET sealed = %s, result = %s WHERE space = %s AND id = %s AND claims = %s RETURNING id

-- count
SELECT name, sum(amount) FROM {t}task_counts WHERE space = %s GROUP BY name

-- busy
SELECT worker, count(*) FROM {t}tasks WHERE space = %s AND state = 'running' GROUP BY worker

-- list
SELECT * FROM (SELECT {columns} FROM {t}tasks WHERE space = %s AND position < %s ORDER BY position DESC LIMIT %s) AS live UNION ALL SELECT *
FROM (SELECT {ended_columns} FROM {t}ended_tasks WHERE space = %s AND position < %s ORDER BY position DESC LIMIT %s) AS ended

-- list_live
SELECT {columns} FROM {t}tasks WHERE space = %s AND state = %s AND position < %s ORDER BY position DESC LIMIT %s

-- list_ended
SELECT {ended_columns} FROM {t}ended_tasks WHERE space = %s AND state = %s AND position < %s ORDER BY position DESC LIMIT %s

-- find
SELECT {columns} FROM {t}tasks WHERE space = %s AND id >= %s AND id < %s UNION ALL SELECT {ended_columns} FROM {t}ended_tasks WHERE space =
%s AND id >= %s AND id < %s ORDER BY id LIMIT 20

-- has_ended
SELECT id FROM {t}ended_tasks WHERE space = %s AND id = %s

-- remove_moved
--- What now is in a shared list.
DELETE FROM {t}tasks WHERE space = %s AND id = %s

-- remove_needs_of_moved
DELETE FROM {t}task_needs WHERE space = %s AND task = %s

-- find_copy
--- Only in a shared store.
SELECT to_regclass('helix.tasks_of_0_2')::text

-- remove_tasks_of_copy
DELETE FROM helix.tasks_of_0_2 WHERE space = %s

-- remove_needs_of_copy
DELETE FROM helix.task_needs_of_0_2 WHERE space = %s
