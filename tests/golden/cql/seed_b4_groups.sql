-- Groups of a window of rows.
Register Stream S1 (A integer, B integer);

Select A, Max(B) From S1 [Rows 200] Group By A
