"""What insert-sync goes by: which operations run on behind their issue, what they access, who has to wait for what. Changes nothing."""
