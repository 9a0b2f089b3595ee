"""Questions of REST that a task host answers: topics, lines of logs, dead letters."""
