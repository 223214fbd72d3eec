-- A chain of joins whose root has one row.
Register Stream S1 (A integer, B integer);
Register Stream S2 (A integer, B integer, C integer);
Register Stream S3 (C integer, D integer);

Select * From S1 [Rows Unbounded], S2 [Rows Unbounded], S3 [Rows 1]
Where S1.B = S2.B and S2.C = S3.C and S3.D > 10
