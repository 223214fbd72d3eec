-- Sensors that repeat one value.
Register Stream readings (station text, series integer, variable text, value number, flag integer, slice integer) Rate 20 Per Second;

Select series From readings [Partition By series Rows 30] Group By series Having count(distinct value) = 1 and count(*) = 30
