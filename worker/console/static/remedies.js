/** What to do about an error, by what its text says. Pure. */

/** @type {[RegExp, string][]} */
const KNOWN = [
  [/access denied|authenticat|password|credential|log ?in failed|unauthori[sz]ed/i,
    "Check the user, the password and the grants in the configuration, or the secret that it refers to. Then restart."],
  [/refused|unreachable|can't be reached|can not be reached|no route|timed? ?out|does not answer|not known|getaddrinfo|name or service/i,
    "Check that the server runs, and that the worker reaches its address and port. Then restart."],
  [/certificate|TLS|SSL/i, "Check the certificates and what the configuration says of TLS. Then restart."],
  [/purged|no longer (there|available)|out of range|log.*(gone|deleted)|could not find first log/i,
    "What has not been read yet is gone at the source. Take a new snapshot, and keep the source's log for longer."],
  [/incompatible|schema registry|subject/i,
    "Make the schema compatible, or change the compatibility of its subject in the registry. Then restart."],
  [/too large|RecordTooLarge|message\.max\.bytes|max\.request\.size/i,
    "Allow larger records at the topic and in the producer, or leave the large column out. Then restart."],
  [/missing required|invalid value|unknown field|is not a|no such|not found|does not exist|can't be used/i,
    "Correct the configuration; Millrace starts the tasks again with it."],
  [/no space|disk full|memory/i, "Make room on the worker's machine. Then restart."],
];
const OTHERWISE = "Open the connector for the whole trace. When the cause is gone, restart what has failed.";

/** The remedy for a text. */
export function remedy(text) {
  return KNOWN.find(([pattern]) => pattern.test(text))?.[1] ?? OTHERWISE;
}

/** The cause at the end of a trace: its last "Caused by", or nothing. */
export function rootCause(trace) {
  const causes = trace.split("\n").filter((line) => line.startsWith("Caused by: "));
  return causes.at(-1)?.slice("Caused by: ".length) ?? "";
}
