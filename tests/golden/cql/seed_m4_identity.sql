-- The stream itself.
Register Stream S (A integer, B integer, C integer);

Select * From S
