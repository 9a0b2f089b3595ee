"""The Lua scripts that write rows: each row with its order number, or its position, as one step that nothing comes between.

All of them take keys in pairs: the key of a row, and its guard, a key in the same slot that remembers the order number where
the row itself can't. Arguments: time to live of rows and of remembered deletes in milliseconds (0: forever), a word for the
form, and the rows in MessagePack: of each its order number as text, ``w`` (write), ``s`` (mark as deleted) or ``d`` (delete),
and its values. The answer: a digit for each row, 1 (written) or 0 (there was a newer one, or an error), which one string holds
since clients read lists slowly; then the number of each row that has an error, from 1, and its text.
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
local digits, errors = {}, {}
for number, row in ipairs(cmsgpack.unpack(ARGV[4])) do
  local done, answer = pcall(write, KEYS[2 * number - 1], KEYS[2 * number], row[1], row[2], row)
  if done then
    digits[number] = answer
  else
    digits[number] = 0
    errors[#errors + 1] = number
    errors[#errors + 1] = type(answer) == 'table' and answer.err or tostring(answer)
  end
end
return {table.concat(digits), unpack(errors)}
"""

#: The order number is a field of the hash; of a deleted row the guard has it. Fields that others have added stay. The word is
#: the names of the fields in MessagePack, in the order of the values.
HASH: Final = (
    _ROWS
    + """
local names = cmsgpack.unpack(word)
local width = #names
-- The names stay in it, the values are those of the row at hand: most rows have no nulls, and need no table of their own.
local pairs_of_row = {}
for number, name in ipairs(names) do pairs_of_row[2 * number - 1] = name end

local function fill(row)
  for number = 1, width do
    local value = row[number + 2]
    if not value then return false end
    pairs_of_row[2 * number] = value
  end
  return true
end

local function set_and_clear(key, action, row)
  local fields, nulls = {}, {}
  for number, name in ipairs(names) do
    local value = row[number + 2]
    if value then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    else
      nulls[#nulls + 1] = name
    end
  end
  redis.call('HSET', key, unpack(fields))
  -- A delete may bring only the key: the other fields stay as they are.
  if action == 'w' then redis.call('HDEL', key, unpack(nulls)) end
end

local function write(key, guard, order, action, row)
  local known = redis.call('HGET', key, 'ums_id_')
  local deleted = not known and redis.call('GET', guard)
  known = known or deleted
  if known and less(order, known) then return 0 end
  if action == 'd' then
    redis.call('DEL', key)
    remember(guard, order, retention)
    return 1
  end
  if fill(row) then
    redis.call('HSET', key, unpack(pairs_of_row, 1, 2 * width))
  else
    set_and_clear(key, action, row)
  end
  if deleted then redis.call('DEL', guard) end
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
local function write(key, guard, order, action, row)
  local known = redis.call('GET', guard)
  if known and less(order, known) then return 0 end
  if action == 'd' then
    redis.call('DEL', key)
    remember(guard, order, retention)
    return 1
  end
  if word == 'JSON.SET' then
    redis.call('JSON.SET', key, '$', row[3])
  else
    redis.call('SET', key, row[3])
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
local function write(key, guard, order, action, row)
  local known = redis.call('GET', guard)
  if known then
    local space = known:find(' ', 1, true)
    if less(order, space and known:sub(1, space - 1) or known) then return 0 end
    if space and known:sub(space + 1) ~= row[3] then redis.call('ZREM', key, known:sub(space + 1)) end
  end
  if action == 'd' then
    redis.call('ZREM', key, row[3])
    remember(guard, order, retention)
    return 1
  end
  redis.call('ZADD', key, row[4], row[3])
  keep(key, ttl)
  remember(guard, order .. ' ' .. row[3], ttl)
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
