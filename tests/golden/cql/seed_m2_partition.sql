-- One condition before the window's limit, one after it.
Register Stream Requests (client_id integer, domain text, URL text) Rate 50 Per Second;

Select Count(*)
From Requests S [Partition By S.client_id Rows 10 Preceding Where S.domain = 'stanford.edu']
Where S.URL Like 'http://cs.stanford.edu/%'
