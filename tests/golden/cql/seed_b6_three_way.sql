-- A join of three windows of rows.
Register Stream R (A integer);
Register Stream S (A integer, B integer);
Register Stream T (B integer);

Select * From R [Rows 100], S [Rows 100], T [Rows 100] Where R.A = S.A and S.B = T.B
