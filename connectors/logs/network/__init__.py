"""Lines that senders bring over the network: syslog, RELP, Lumberjack and HTTP."""
