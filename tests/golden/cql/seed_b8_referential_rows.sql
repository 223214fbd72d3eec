-- The same with a window of rows on one side.
Register Stream S1 (A integer, B integer);
Register Stream S2 (A integer, B integer, C integer);

Select * From S1 [Rows 50,000], S2 [Range 10 Minutes] Where S1.A = S2.A
