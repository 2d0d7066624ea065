"""`anyorder play`: a local page to type a prompt and watch the answer appear, in any order.

server.py is the web server, work.py decodes in threads, form.py makes the form and checks requests;
page/ holds the page's own files.
"""

from __future__ import annotations
