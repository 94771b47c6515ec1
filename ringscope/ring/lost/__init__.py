"""What happens once a rank is lost: the script begins again, in the same process."""
