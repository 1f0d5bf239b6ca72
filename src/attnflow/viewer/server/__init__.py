"""The local web server behind `attnflow serve`.

The life of a request to explain a text:

1. `run` listens on a socket and passes HTTP requests to the application.
2. `security` rejects requests for other hosts or from other pages, and adds security headers.
3. `app` routes the request, checks it against the limits, and submits a task.
4. `jobs` queues the task and returns the ID of a job, which the page polls for progress.
5. `workers` sends the task to a worker process, which holds the loaded models.
6. `tasks` runs there: it explains the text and computes the scores. A worker that takes too long
   is killed, and one that crashes is replaced; the server keeps running.
7. `jobs` stores the result, a payload, from which `app` serves the header and the arrays.
"""
