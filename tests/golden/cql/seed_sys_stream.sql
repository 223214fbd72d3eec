-- Full queues of the system itself.
Register Stream SysStream (query text, entity text, kind text, property text, value number);

Select entity, max(value) From SysStream [Range 5 Minutes]
Where property = 'queue_elements' Group By entity Having max(value) > 100000
