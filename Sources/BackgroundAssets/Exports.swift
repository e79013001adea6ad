// Apple's framework brings these along, and source that is written for it relies on that.
@_exported public import ExtensionFoundation
@_exported public import Foundation
@_exported public import FoundationNetworking
@_exported public import SystemPackage
