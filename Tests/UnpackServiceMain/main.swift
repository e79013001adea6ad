import Glibc
import StageArchive

exit(UnpackService.run())
