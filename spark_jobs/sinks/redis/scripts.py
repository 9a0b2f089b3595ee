"""The Lua scripts that write rows: each row with its order number, or its position, as one step that nothing comes between.

All of them take keys in pairs: the key of a row, and its guard, a key in the same slot that remembers the order number where
the row itself can't. Arguments: time to live of rows and of remembered deletes in milliseconds (0: forever), a word for the
form, and the rows in MessagePack: of each its order number as text, ``w`` (write), ``s`` (mark as deleted) or ``d`` (delete),
its values, the names of columns that are null. The answer has for each row 1 (written), 0 (there was a newer one) or the text
of an error.
"""

from __future__ import annotations

from typing import Final

_ROWS: Final = """
local ttl, retention, word = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

-- Order numbers have more digits than Lua's numbers.
local function less(a, b)
  local negative = a:sub(1, 1) == '-'
  if negative ~= (b:sub(1, 1) == '-') then return negative end
  if negative then a, b = b:sub(2), a:sub(2) end
  if #a ~= #b then return #a < #b end
  return a < b
end

local function keep(key, milliseconds)
  if milliseconds > 0 then redis.call('PEXPIRE', key, milliseconds) end
end

local function remember(guard, text, milliseconds)
  if milliseconds > 0 then redis.call('SET', guard, text, 'PX', milliseconds) else redis.call('SET', guard, text) end
end
"""

_LOOP: Final = """
local answers = {}
for number, row in ipairs(cmsgpack.unpack(ARGV[4])) do
  local done, answer = pcall(write, KEYS[2 * number - 1], KEYS[2 * number], row[1], row[2], row[3], row[4])
  if not done then answer = type(answer) == 'table' and answer.err or tostring(answer) end
  answers[number] = answer
end
return answers
"""

#: The order number is a field of the hash; of a deleted row the guard has it. Fields that others have added stay.
HASH: Final = (
    _ROWS
    + """
local function write(key, guard, order, action, values, nulls)
  local known = redis.call('HGET', key, 'ums_id_') or redis.call('GET', guard)
  if known and less(order, known) then return 0 end
  if action == 'd' then
    redis.call('DEL', key)
    remember(guard, order, retention)
    return 1
  end
  redis.call('HSET', key, unpack(values))
  if #nulls > 0 then redis.call('HDEL', key, unpack(nulls)) end
  redis.call('DEL', guard)
  keep(key, ttl)
  return 1
end
"""
    + _LOOP
)

#: The guard has the order number. One value per row; the word is SET or JSON.SET.
VALUE: Final = (
    _ROWS
    + """
local function write(key, guard, order, action, values, nulls)
  local known = redis.call('GET', guard)
  if known and less(order, known) then return 0 end
  if action == 'd' then
    redis.call('DEL', key)
    remember(guard, order, retention)
    return 1
  end
  if word == 'JSON.SET' then
    redis.call('JSON.SET', key, '$', values[1])
  else
    redis.call('SET', key, values[1])
  end
  keep(key, ttl)
  remember(guard, order, ttl)
  return 1
end
"""
    + _LOOP
)

#: The guard has the order number and, after a space, the member, so that one that changes is removed. Values: member, score.
SORTED_SET: Final = (
    _ROWS
    + """
local function write(key, guard, order, action, values, nulls)
  local known = redis.call('GET', guard)
  if known then
    local space = known:find(' ', 1, true)
    if less(order, space and known:sub(1, space - 1) or known) then return 0 end
    if space and known:sub(space + 1) ~= values[1] then redis.call('ZREM', key, known:sub(space + 1)) end
  end
  if action == 'd' then
    redis.call('ZREM', key, values[1])
    remember(guard, order, retention)
    return 1
  end
  redis.call('ZADD', key, values[2], values[1])
  keep(key, ttl)
  remember(guard, order .. ' ' .. values[1], ttl)
  return 1
end
"""
    + _LOOP
)

#: Entries of one stream out of one Kafka partition, in order. Keys: the stream, and a hash of positions in the same slot.
#: Arguments: time to live in milliseconds (0: forever), the longest the stream may become (0: any length), the field of the
#: position, and the entries in MessagePack: of each its position, and its names and values. Positions have a fixed width, so
#: that they compare as text. The answer: how many entries are done, how many of these were there before, the text of an error
#: or ''.
STREAM: Final = """
local ttl, longest, field = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local done, before = 0, 0
local known = redis.call('HGET', KEYS[2], field) or ''
for _, entry in ipairs(cmsgpack.unpack(ARGV[4])) do
  if entry[1] <= known then
    before = before + 1
  else
    local answer
    if longest > 0 then
      answer = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', longest, '*', unpack(entry[2]))
    else
      answer = redis.pcall('XADD', KEYS[1], '*', unpack(entry[2]))
    end
    if type(answer) == 'table' and answer.err then return {done, before, answer.err} end
    redis.call('HSET', KEYS[2], field, entry[1])
  end
  done = done + 1
end
if ttl > 0 then
  redis.call('PEXPIRE', KEYS[1], ttl)
end
return {done, before, ''}
"""
