-- Rows of a stream that are in windows of others.
Register Stream S0 (A integer, B integer);
Register Stream S1 (A integer, B integer);
Register Stream S2 (A integer, B integer);

Select * From S0
Where S0 in (Select * From S1 [Rows 10,000]) and S0 in (Select * From S2 [Rows 10,000])
